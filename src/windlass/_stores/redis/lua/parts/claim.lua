-- Claim from queues without lanes or limits, lowest rank and id first over all of them. From `at`: session, claim
-- number, most tasks, then the queues. Returns rows, or nil if the session is not alive.
local function claim(at, prefix, now)
    local session, number, most = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
    local worker = worker_of(prefix, session, now)
    if not worker then
        return nil
    end
    local to, taken = lessor(prefix, session, number, worker, now), batch('ZREM', 500)
    local queues, claimed = {}, {}
    for position = at + 3, #ARGV do
        queues[#queues + 1] = {key = prefix .. 'r:' .. ARGV[position] .. '\31', heads = {}, next = 1, more = true}
    end
    local function head(queue)
        if queue.next > #queue.heads and queue.more then
            taken.flush()
            queue.heads = redis.call('ZRANGE', queue.key, 0, most - 1, 'WITHSCORES')
            queue.next = 1
            queue.more = #queue.heads == 2 * most
        end
        return queue.heads[queue.next], tonumber(queue.heads[queue.next + 1])
    end
    while #claimed < most do
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
        taken.add(first.key, id)
        local row = read(prefix, id)
        if row[AT.v] and not is_expired(row, now) then
            claimed[#claimed + 1] = to.lease(id, row, '')
        end
    end
    taken.flush()
    to.done()
    return claimed
end
