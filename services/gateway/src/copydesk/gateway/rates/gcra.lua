-- The generic cell rate algorithm, as copydesk.gateway.rates.gcra has it; `now` is set before, in microseconds.
-- KEYS[1]: where a client's state is. ARGV: the interval in microseconds, the burst.
-- Returns the microseconds to wait, 0 if the request passes.
local interval, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local window = interval * burst
local known = tonumber(redis.call('GET', KEYS[1]) or 0)

local due = math.min(math.max(known, now), now + window)
local wait = due + interval - window - now
if wait <= 0 then
  due, wait = due + interval, 0
end

if due ~= known then
  -- A state whose time has come says nothing any more, so it may expire then. Lua would print 14 digits by itself.
  local left = math.ceil((due - now) / 1000)
  redis.call('SET', KEYS[1], string.format('%.0f', due), 'PX', string.format('%.0f', left))
end
return wait
