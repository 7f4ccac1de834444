-- Lease the tasks that a plan picked. ARGV: now, prefix, a commit, session, claim number, whether the plan took tokens
-- ('1': all tasks or none), the number of runs, and for each: queue, place, the number of its permits and of its tasks,
-- for each permit: its key and the most that may run ('' for any number), then the ids.
-- Returns 1, the time, 0 and rows; -1 for rows if the session is not alive; 0 if a guard or a task has changed.
@steady
@clock
@bulk
@memory
@row
@commit
@lease
local now, prefix = clock(ARGV[1]), ARGV[2]
local commands, failed = guarded(3)
if not commands then
    return {0, whole(now), failed}
end
local at = skip(commands)
local session, number, all = ARGV[at], ARGV[at + 1], ARGV[at + 2] == '1'
local runs = tonumber(ARGV[at + 3])
at = at + 4
local worker = worker_of(prefix, session, now)
if not worker then
    return {1, whole(now), 0, -1}
end
local running, wanted, ids, run_of = {}, {}, {}, {}
for run = 1, runs do
    local queue, place, permits, tasks = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
    local ready, room, keys = prefix .. 'r:' .. queue .. '\31' .. place, tasks, {}
    at = at + 4
    for permit = 1, permits do
        local key, most = ARGV[at], ARGV[at + 1]
        at = at + 2
        keys[permit] = key
        if most ~= '' then
            running[key] = running[key] or redis.call('SCARD', prefix .. 'u:' .. key)
            room = math.min(room, tonumber(most) - running[key])
        end
    end
    local here = {}
    for position, rank in ipairs(redis.call('ZMSCORE', ready, unpack(ARGV, at, at + tasks - 1))) do
        if rank and #here < room then
            here[#here + 1] = ARGV[at + position - 1]
            ids[#ids + 1] = ARGV[at + position - 1]
            run_of[#ids] = run
        elseif all then
            return {0, whole(now), 0}
        end
    end
    at = at + tasks
    for _, key in ipairs(keys) do
        if running[key] then
            running[key] = running[key] + #here
        end
    end
    wanted[run] = {ready = ready, queue = queue, place = place, ids = here, keys = keys,
        permits = table.concat(keys, '\n')}
end
apply(3, commands)
local left = {}
for position, run in ipairs(wanted) do
    in_parts('ZREM', run.ready, run.ids)
    left[position] = run.ready
end
if runs > 0 and redis.call('EXISTS', unpack(left)) < runs then
    for _, run in ipairs(wanted) do
        if run.place ~= '' and redis.call('EXISTS', run.ready) == 0 then
            redis.call('ZREM', prefix .. 'l:' .. run.queue, run.place)
        end
    end
end
local to, holding, claimed = lessor(prefix, session, number, worker, now), batch('SADD'), {}
for position, row in ipairs(rows_of(prefix, ids)) do
    local run = wanted[run_of[position]]
    local leased = to.lease(ids[position], row, run.permits)
    if leased then -- not if it has expired since it was planned
        for _, key in ipairs(run.keys) do
            local holders = holding.members(prefix .. 'u:' .. key)
            holders[#holders + 1] = ids[position]
        end
        claimed[#claimed + 1] = leased
    end
end
to.done()
holding.flush()
return {1, whole(now), 0, claimed}
