-- Forget the names of groups that have no tasks. ARGV: prefix, names.
@steady
for position = 2, #ARGV do
    if redis.call('EXISTS', ARGV[1] .. 'g:' .. ARGV[position]) == 0 then
        redis.call('SREM', ARGV[1] .. 'groups', ARGV[position])
    end
end
