-- Insert new tasks that are ready at once. KEYS: `meta`, then their rows. ARGV: now, prefix, version of the rules, due,
-- the number of kinds, each: group, queue, place, rank and the number of its tasks; then the rows.
-- Returns whether they were inserted, and the time; none is if one of them exists or the rules have changed.
@steady
@clock
@bulk
local prefix, due, kinds, time = ARGV[2], ARGV[4], tonumber(ARGV[5]), whole(clock(ARGV[1]))
if redis.call('HGET', KEYS[1], 'rules') ~= ARGV[3] then
    return {0, time}
end
for first = 2, #KEYS, MOST do
    if redis.call('EXISTS', unpack(KEYS, first, math.min(first + MOST - 1, #KEYS))) > 0 then
        return {0, time}
    end
end

-- Score and id of a run of tasks.
local function scored(score, first, last)
    local members, id = {}, #prefix + #'t:' + 1
    for task = first, last do
        members[#members + 1] = score
        members[#members + 1] = string.sub(KEYS[task], id)
    end
    return members
end

local rows, before = {}, 4 + 5 * kinds
for task = 2, #KEYS do
    rows[#rows + 1] = KEYS[task]
    rows[#rows + 1] = ARGV[before + task]
end
set_all(rows)
in_parts('ZADD', prefix .. 'ids', scored('0', 2, #KEYS))
local first, woken = 2, {}
for at = 6, 5 + 5 * kinds, 5 do
    local group, queue, place, rank, last = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], first + ARGV[at + 4] - 1
    redis.call('SADD', prefix .. 'groups', 'ready\31' .. group)
    in_parts('ZADD', prefix .. 'g:ready\31' .. group, scored(due, first, last))
    in_parts('ZADD', prefix .. 'r:' .. queue .. '\31' .. place, scored(rank, first, last))
    if place ~= '' then
        redis.call('ZADD', prefix .. 'l:' .. queue, '0', place)
    end
    if not woken[queue] then
        woken[queue] = redis.call('PUBLISH', prefix .. 'wakes', 'r' .. queue)
    end
    first = last + 1
end
return {1, time}
