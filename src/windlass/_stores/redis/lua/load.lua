-- Read tasks. ARGV: prefix, ids. Returns the fields of each task's hash and its document; those that do not exist
-- have no version.
@steady
local FIELDS = {@fields}
local prefix, found = ARGV[1], {}
for position = 2, #ARGV do
    local id = ARGV[position]
    found[position - 1] = {redis.call('HMGET', prefix .. 't:' .. id, unpack(FIELDS)),
        redis.call('GET', prefix .. 'd:' .. id)}
end
return found
