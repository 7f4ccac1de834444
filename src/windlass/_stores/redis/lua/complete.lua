-- Complete running tasks that do not expire and that nothing waits for, then claim. ARGV: now, prefix, version of
-- the rules, when they ended, the number of tasks, each: id, version, what else may change; then what `claim` takes,
-- or nothing. Returns 1, the time, 0 and what `claim` returns; 0 if something has changed.
@steady
@clock
@bulk
@row
@lease
@types
@claim
local now, prefix, ended_at, tasks = clock(ARGV[1]), ARGV[2], ARGV[4], tonumber(ARGV[5])
local ids = {}
for task = 1, tasks do
    ids[task] = ARGV[3 + 3 * task]
end
local rows = rows_of(prefix, ids)
if redis.call('HGET', KEYS[1], 'rules') ~= ARGV[3] then
    return {0, whole(now), 0}
end
for task = 1, tasks do
    local row = rows[task]
    if not row or string.sub(row, 1, @version) ~= ARGV[4 + 3 * task] or state_of(row) ~= RUNNING then
        return {0, whole(now), 0}
    end
end
local leaving, entering, freed, given_back = batch('ZREM'), batch('ZADD'), batch('HDEL'), batch('SREM')
local written, groups, named, has_permits = {}, {}, {}, false
for task = 1, tasks do
    local id, row, changing = ids[task], rows[task], ARGV[5 + 3 * task]
    local session, new, name, due, permits = completed(row, changing)
    written[2 * task - 1] = prefix .. 't:' .. id
    written[2 * task] = new
    local sets = groups[name]
    if not sets then
        local kind = string.match(name, '^(.*)\31[^\31]*$') -- without the tenant
        sets = {leaving.members(prefix .. 'g:running\31' .. name), entering.members(prefix .. 'g:completed\31' .. name),
            entering.members(prefix .. 'e:completed\31' .. kind)}
        groups[name] = sets
        named[#named + 1] = 'completed\31' .. name
    end
    local left, entered, ended, held = sets[1], sets[2], sets[3], freed.members(prefix .. 'h:' .. session)
    left[#left + 1] = id
    entered[#entered + 1] = due
    entered[#entered + 1] = id
    ended[#ended + 1] = ended_at
    ended[#ended + 1] = id
    held[#held + 1] = id
    for permit in string.gmatch(permits, '[^\n]+') do
        local holders = given_back.members(prefix .. 'u:' .. permit)
        holders[#holders + 1] = id
        has_permits = true
    end
end
leaving.flush() -- First: it takes no memory, so that tasks complete when memory is full (memory.lua).
set_all(written)
entering.flush()
in_parts('SADD', prefix .. 'groups', named)
freed.flush()
given_back.flush()
if has_permits then
    redis.call('PUBLISH', prefix .. 'wakes', 'r')
end
local at = 6 + 3 * tasks
if at > #ARGV then
    return {1, whole(now), 0, {}, 0}
end
return {1, whole(now), 0, claim(at, prefix, now)}
