-- Find lanes of a queue whose tasks have no keys, and the first ready tasks of each: as many of all together as lanes
-- at most, or more. ARGV: prefix, queue, the first name of a lane, the name that ends the range, most lanes.
-- Returns 1 if some tasks expire, else 0; then for each lane its place, and a list of ids and ranks.
@steady
local prefix, queue, first, below, most = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local ready = prefix .. 'r:' .. queue .. '\31'
local places = redis.call('ZRANGEBYLEX', prefix .. 'l:' .. queue, '[' .. first, '(' .. below, 'LIMIT', 0, most)
if first == '' and redis.call('EXISTS', ready) == 1 then
    table.insert(places, 1, '')
    places[most + 1] = nil
end
local found, each = {redis.call('EXISTS', prefix .. 'expiring')}, math.ceil(most / #places)
for _, place in ipairs(places) do
    found[#found + 1] = place
    found[#found + 1] = redis.call('ZRANGE', ready .. place, 0, each - 1, 'WITHSCORES')
end
return found
