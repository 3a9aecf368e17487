#!lua flags=allow-oom
-- Ends a term, so that another process can take over at once, or only names the successor.
--
-- KEYS[1]  the term (hash)
-- ARGV[1]  term   ARGV[2]  run of the server
-- ARGV[3]  the successor, '' for any process   ARGV[4]  channel of the fleet, which is notified
-- ARGV[5]  'released', or 'named' if the term continues
--
-- Returns {'released'} or {'named'}, {'fenced'}, {'regressed'} or {'empty'}.
local term = redis.call('HMGET', KEYS[1], 'term', 'run')
if not term[1] then return {'empty'} end
if term[2] ~= ARGV[2] then return {'regressed'} end
if term[1] ~= ARGV[1] then return {'fenced'} end
redis.call('HSET', KEYS[1], 'released', ARGV[5] == 'released' and 1 or 0, 'successor', ARGV[3])
redis.call('HINCRBY', KEYS[1], 'beat', 1)
redis.set_repl(redis.REPL_NONE)
redis.pcall('PUBLISH', ARGV[4], ARGV[5])
return {ARGV[5]}
