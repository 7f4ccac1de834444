-- While a Cluster moves the slot of the store key by key, a key that is missing here may be on the other server, and
-- the first access to one ends a script halfway. So no script begins then: the first key's neighbour never exists.
local moving = redis.pcall('EXISTS', KEYS[1] .. ':none')
if type(moving) == 'table' and moving.err then
    return redis.error_reply('TRYAGAIN the slot of this store is being moved')
end
