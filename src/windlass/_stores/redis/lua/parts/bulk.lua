-- Commands with many arguments, in parts that fit Lua's stack.
local MOST = 1000

local function in_parts(command, key, arguments)
    for first = 1, #arguments, MOST do
        redis.call(command, key, unpack(arguments, first, math.min(first + MOST - 1, #arguments)))
    end
end

-- Set strings: keys and values in turn.
local function set_all(pairs)
    for first = 1, #pairs, MOST do
        redis.call('MSET', unpack(pairs, first, math.min(first + MOST - 1, #pairs)))
    end
end
