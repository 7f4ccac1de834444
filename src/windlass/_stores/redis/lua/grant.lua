-- Lease the tasks that a plan picked. ARGV: now, prefix, a commit, session, claim number, whether the
-- plan took tokens ('1': all tasks or none), the number of tasks, and for each: id, queue, place, the number of its
-- permits and for each: its key and the most that may run ('' for any number).
-- Returns 1, the time, 0 and rows; -1 for rows if the session is not alive; 0 if a guard or a task has changed.
@steady
@clock
@bulk
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
local tasks = tonumber(ARGV[at + 3])
at = at + 4
local worker = worker_of(prefix, session, now)
if not worker then
    return {1, whole(now), 0, -1}
end
local taken, wanted = {}, {}
for _ = 1, tasks do
    local id, queue, place = ARGV[at], ARGV[at + 1], ARGV[at + 2]
    local ready = prefix .. 'r:' .. queue .. '\31' .. place
    local permits, free = tonumber(ARGV[at + 3]), true
    at = at + 4
    local keys = {}
    for _ = 1, permits do
        local key, most = ARGV[at], ARGV[at + 1]
        at = at + 2
        keys[#keys + 1] = key
        if most ~= '' then
            local running = (taken[key] or redis.call('SCARD', prefix .. 'u:' .. key))
            if running >= tonumber(most) then
                free = false
            end
            taken[key] = running
        end
    end
    if free and redis.call('ZSCORE', ready, id) then
        for _, key in ipairs(keys) do
            if taken[key] then
                taken[key] = taken[key] + 1
            end
        end
        wanted[#wanted + 1] = {id = id, ready = ready, queue = queue, place = place, permits = keys}
    elseif all then
        return {0, whole(now), 0}
    end
end
apply(3, commands)
local to = lessor(prefix, session, number, worker, now)
local claimed, ids = {}, {}
for position, task in ipairs(wanted) do
    ids[position] = task.id
end
for position, row in ipairs(rows_of(prefix, ids)) do
    local task = wanted[position]
    redis.call('ZREM', task.ready, task.id)
    if task.place ~= '' and redis.call('EXISTS', task.ready) == 0 then
        redis.call('ZREM', prefix .. 'l:' .. task.queue, task.place)
    end
    local leased = to.lease(task.id, row, table.concat(task.permits, '\n'))
    if leased then -- not if it has expired since it was planned
        for _, key in ipairs(task.permits) do
            redis.call('SADD', prefix .. 'u:' .. key, task.id)
        end
        claimed[#claimed + 1] = leased
    end
end
to.done()
return {1, whole(now), 0, claimed}
