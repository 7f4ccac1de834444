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
local rows, before = {}, 4 + 5 * kinds
for task = 2, #KEYS do
    rows[2 * task - 3] = KEYS[task]
    rows[2 * task - 2] = ARGV[before + task]
end
set_all(rows)

-- Add tasks to a sorted set, all with one score.
local function add(key, score, members)
    for position = 1, #members, 2 do
        members[position] = score
    end
    in_parts('ZADD', key, members)
end

local first, woken, named, places = 2, {}, {}, {}
for at = 6, 5 + 5 * kinds, 5 do
    local group, queue, place, rank, last = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], first + ARGV[at + 4] - 1
    local members, id = {}, #prefix + #'t:' + 1
    for task = first, last do
        members[2 * (task - first) + 1] = '0'
        members[2 * (task - first) + 2] = string.sub(KEYS[task], id)
    end
    in_parts('ZADD', prefix .. 'ids', members)
    named[#named + 1] = 'ready\31' .. group
    add(prefix .. 'g:ready\31' .. group, due, members)
    add(prefix .. 'r:' .. queue .. '\31' .. place, rank, members)
    if place ~= '' then
        local filled = places[queue] or {}
        filled[#filled + 1], filled[#filled + 2] = '0', place
        places[queue] = filled
    end
    if not woken[queue] then
        woken[queue] = redis.call('PUBLISH', prefix .. 'wakes', 'r' .. queue)
    end
    first = last + 1
end
in_parts('SADD', prefix .. 'groups', named)
for queue, filled in pairs(places) do
    in_parts('ZADD', prefix .. 'l:' .. queue, filled)
end
return {1, time}
