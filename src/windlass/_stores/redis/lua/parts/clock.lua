-- The time in microseconds: of a test's clock if one is given, else of the server.
local function clock(given)
    if given ~= '' then
        return tonumber(given)
    end
    local time = redis.call('TIME')
    return time[1] * 1000000 + time[2]
end

local function whole(number)
    return string.format('%.0f', number)
end
