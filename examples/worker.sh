#!/bin/bash
# A worker for windlass that runs a command for each task, one at a time. It needs curl and jq.
#
#   WINDLASS_KEY=… worker.sh URL QUEUE COMMAND [ARGUMENT…]
#
# The command gets the payload on standard input, and WINDLASS_TASK, WINDLASS_TYPE and WINDLASS_ATTEMPT in its
# environment. Exit status 0: completed; standard output is the result. 75: snooze for a minute. Any other: failed; the
# end of standard error is the error message. To stop it, it and its children get SIGTERM.
#
# LEASE and GRACE are in whole seconds. If the worker is killed its command keeps running, so a task may run twice.
set -u

[[ $# -ge 3 && -n ${WINDLASS_KEY:-} ]] || { sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 2; }
url=${1%/} queue=$2; shift 2
lease=${LEASE:-30} grace=${GRACE:-20}
dir=$(mktemp -d) || exit 1
self=$(jq -n --arg name "$HOSTNAME-$$" --arg queue "$queue" --arg host "$HOSTNAME" --argjson lease "$lease" \
    '{name: $name, queues: [$queue], slots: 1, lease: $lease, host: $host}') || exit 2
session='' number=0 renewed=0 stopping=0 stopped_at=0

say() { echo "worker.sh: $*" >&2; }
stop() { ((stopping)) || { stopping=1 stopped_at=$SECONDS; say "stopping"; }; }
trap stop TERM INT
trap 'rm -rf "$dir"' EXIT

# ask METHOD PATH [BODY]: send a request. The response is in $dir/answer, its status in $status (000: no response).
# curl runs in the background, so that the shell handles signals immediately; a signal aborts a claim.
ask() {
    curl -s -X "$1" -H @<(printf 'Authorization: Bearer %s\n' "$WINDLASS_KEY") -H 'Content-Type: application/json' \
        --max-time 20 --data-binary @- -o "$dir/answer" -w '%{http_code}' "$url$2" <<<"${3:-}" >"$dir/status" &
    local curl=$!
    until wait "$curl" || ! kill -0 "$curl" 2>/dev/null; do
        [[ $2 != /work/claim ]] || kill "$curl" 2>/dev/null
    done
    status=$(<"$dir/status")
    [[ $status == 2* ]]
}

# persist METHOD PATH BODY: repeat a request until it succeeds or fails permanently.
persist() {
    until ask "$@"; do
        case $session:$status in
        :401 | :403) say "the server rejected the key: $(<"$dir/answer")"; return 1 ;; # at start-up
        *:401 | *:403 | *:408 | *:429 | *:5?? | *:000 | *:) say "$2 failed (${status:-000}), retrying" ;;
        *) say "$2 was rejected: $(<"$dir/answer")"; return 1 ;;
        esac
        ((!stopping || SECONDS - stopped_at < grace + lease)) && [[ $stopping$2 != 1/work/sessions ]] || return 1
        pause 1
    done
}

pause() { sleep "$1" & wait "$!"; kill "$!" 2>/dev/null; }

open_session() {
    persist POST /work/sessions "$self" || exit 1
    session=$(jq -r .session "$dir/answer") renewed=$SECONDS
}

# heartbeat [LEASE]: renew the session and report the held task. All claims have been answered or aborted.
heartbeat() {
    ask POST /work/heartbeat "$(jq -n --arg session "$session" --argjson worker "$self" --argjson held "[${1:-}]" \
        --argjson through "$number" '{$session, $worker, $held, $through}')" && renewed=$SECONDS
}

# claim: claim a task into $dir/task; fails if there is none.
claim() {
    ((number += 1))
    ask POST /work/claim "$(jq -n --arg session "$session" --argjson worker "$self" --argjson number "$number" \
        '{$session, queues: $worker.queues, $number, wait: ([$worker.lease / 3, 10] | min)}')" &&
        jq -e '.tasks[0] // empty' "$dir/answer" >"$dir/task"
}

# run COMMAND…: run it for the task, with heartbeats. $ended is why it was stopped, $code its exit status.
run() {
    local held command
    held=$(jq -c '{id, fence}' "$dir/task") ended='' began=$SECONDS
    jq -c .payload "$dir/task" >"$dir/payload"
    WINDLASS_TASK=$(jq -r .id "$dir/task") WINDLASS_TYPE=$(jq -r .type "$dir/task") \
        WINDLASS_ATTEMPT=$(jq -r .attempt "$dir/task") \
        setsid timeout --kill-after=5 "$(jq -r '.timeout // 0' "$dir/task")" "$@" \
        <"$dir/payload" >"$dir/stdout" 2>"$dir/stderr" &
    command=$!
    while kill -0 "$command" 2>/dev/null; do
        sleep "$((lease > 3 ? lease / 3 : 1))" & local tick=$!
        wait -n "$command" "$tick"
        kill "$tick" 2>/dev/null
        kill -0 "$command" 2>/dev/null || break
        ((!stopping || SECONDS - stopped_at < grace)) || end_it interrupted
        if heartbeat "$held"; then
            jq -e '.lost == []' "$dir/answer" >/dev/null || end_it lost
            jq -e '.cancel == []' "$dir/answer" >/dev/null || end_it stopped
        elif [[ $status == 410 ]] || ((SECONDS - renewed > lease * 8 / 10)); then
            end_it lost # other workers have it, or soon will
        fi
    done
    wait "$command"
    code=$?
}

end_it() {
    ended=${ended:-$1}
    kill -TERM -- "-$command" 2>/dev/null
}

settle() {
    local outcome=$ended body
    if [[ -z $outcome ]]; then
        case $code in
        0) outcome=returned ;;
        75) outcome=snoozed ;;
        124) outcome=timedout ;;
        *) outcome=failed ;;
        esac
    fi
    body=$(jq -n --slurpfile task "$dir/task" --rawfile out "$dir/stdout" --arg error "$(tail -c 4000 "$dir/stderr")" \
        --arg outcome "$outcome" --arg code "$code" --argjson duration "$((SECONDS - began))" '
        $task[0] | {id, fence, $outcome, $duration}
        + if $outcome == "returned" and $out != "" then {result: ($out | try fromjson catch $out)}
          elif $outcome == "failed" then {error: {type: "exit status \($code)", message: $error}}
          elif $outcome == "snoozed" then {delay: 60} else {} end
        | {tasks: [.]}')
    persist POST /work/settle "$body" # settling is idempotent, so retry until it is confirmed
}

open_session
say "serving the queue $queue"
until ((stopping)); do
    if ! heartbeat; then
        [[ $status == 410 ]] && open_session || { say "heartbeat failed ($status), retrying"; pause 1; }
        continue
    fi
    if claim; then
        run "$@"
        [[ $ended == lost ]] || settle
    elif [[ $status != 2* ]] && ((!stopping)); then
        say "claim failed ($status), retrying"
        pause 1
    fi
done
heartbeat # releases tasks granted by an aborted claim
ask DELETE "/work/sessions/$session"
