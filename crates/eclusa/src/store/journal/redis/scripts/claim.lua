#!lua flags=allow-oom
-- Stores how much of the journal a process has, while the server's data is in doubt.
--
-- KEYS[1]  claims (hash)
-- ARGV[1]  process   ARGV[2]  its last acknowledged chunk   ARGV[3]  how long all claims live from now on, in milliseconds
--
-- Returns 1 if the process had no claim, else 0.
-- Each claim carries its time: the key lives while any process renews a claim, and a claim that is not renewed must expire.
local time = redis.call('TIME')
local new = redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return new
