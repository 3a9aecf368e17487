#!lua flags=no-writes
-- Reads everything about ownership in one step.
--
-- KEYS[1]  the term (hash)   KEYS[2]  claims (hash)
-- ARGV[1]  prefix of the channels of questions   ARGV[2]  channel of the fleet
--
-- Returns {term fields, claim fields, listeners to the term's questions, connected processes, seconds,
-- microseconds}.
local term = redis.call('HGETALL', KEYS[1])
local id = redis.call('HGET', KEYS[1], 'term') or ''
local listeners = redis.call('PUBSUB', 'NUMSUB', ARGV[1] .. id, ARGV[2])
local time = redis.call('TIME')
return {term, redis.call('HGETALL', KEYS[2]), listeners[2], listeners[4], time[1], time[2]}
