-- Claim from queues without lanes or limits, lowest rank and id first over all of them. From `at`: session, claim
-- number, most tasks, then the queues. Returns rows, or -1 if the session is not alive; and 1 if it stopped looking, as
-- too many had expired, else 0.
local EXAMINED = 500 -- tasks that one script looks at

-- Returns a function that takes up to so many ids out of a queue.
local function from_one(key)
    return function(most)
        local ids = redis.call('ZRANGE', key, 0, most - 1)
        in_parts('ZREM', key, ids)
        return ids
    end
end

-- The same over several queues, by rank.
local function from_several(keys, most)
    local queues = {}
    for position, key in ipairs(keys) do
        queues[position] = {key = key, heads = {}, next = 1, more = true}
    end
    local function head(queue)
        if queue.next > #queue.heads and queue.more then
            queue.heads, queue.next = redis.call('ZRANGE', queue.key, 0, most - 1, 'WITHSCORES'), 1
            queue.more = #queue.heads == 2 * most
        end
        return queue.heads[queue.next], tonumber(queue.heads[queue.next + 1])
    end
    return function(wanted)
        local ids, taken = {}, batch('ZREM')
        while #ids < wanted do
            local first, rank, id
            for _, queue in ipairs(queues) do
                local other, its = head(queue)
                if other and (not first or its < rank or (its == rank and other < id)) then
                    first, rank, id = queue, its, other
                end
            end
            if not first then
                break
            end
            first.next = first.next + 2
            ids[#ids + 1] = id
            local members = taken.members(first.key)
            members[#members + 1] = id
            if first.next > #first.heads then
                taken.flush()
                taken = batch('ZREM')
            end
        end
        taken.flush()
        return ids
    end
end

local function claim(at, prefix, now)
    local session, number, most = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
    local worker = worker_of(prefix, session, now)
    if not worker then
        return -1, 0
    end
    local keys, claimed, examined = {}, {}, 0
    for position = at + 3, #ARGV do
        keys[#keys + 1] = prefix .. 'r:' .. ARGV[position] .. '\31'
    end
    local take = #keys == 1 and from_one(keys[1]) or from_several(keys, most)
    local to = lessor(prefix, session, number, worker, now)
    while #claimed < most and examined < EXAMINED do
        local ids = take(math.min(most - #claimed, EXAMINED - examined))
        if #ids == 0 then
            break
        end
        for position, row in ipairs(rows_of(prefix, ids)) do
            claimed[#claimed + 1] = to.lease(ids[position], row, '')
        end
        examined = examined + #ids
    end
    to.done()
    return claimed, #claimed < most and examined >= EXAMINED and 1 or 0
end
