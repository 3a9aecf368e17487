#!lua flags=allow-oom
-- Appends a chunk under the fence of its term, or only renews the term; then writes the public keys and publishes answers.
--
-- KEYS[1]  the term (hash)
-- KEYS[2]  the journal (stream)
-- KEYS[3…] public keys, in the order of their writes
-- ARGV[1]  term                    ARGV[2]  run of the server
-- ARGV[3]  epoch                   ARGV[4]  number of the last chunk after this call
-- ARGV[5]  chunk, '' to renew only ARGV[6]  chunks before this id are removed, '' for none
-- ARGV[7]  oldest format that can read the journal
-- ARGV[8]  channel of the term's questions
-- ARGV[9]  1 if the journal has everything that the owner has
-- ARGV[10] how many public writes follow, four arguments each: 'set' value '' ms, 'hash' tokens last_refill ms, 'del' '' '' ''
-- then     channel and message of each answer
--
-- Returns {'ok', listeners, places of answers that nobody received…}, {'number', last}, {'fenced'}, {'regressed'} or {'empty'}.
local term = redis.call('HMGET', KEYS[1], 'term', 'run', 'number', 'repairing', 'beat')
if not term[1] then return {'empty'} end
-- Checked before the term: after a failover to an older state the term may be old, and the owner still has what is missing.
if term[2] ~= ARGV[2] then return {'regressed'} end
if term[1] ~= ARGV[1] then return {'fenced'} end
local last, number = tonumber(term[3]), tonumber(ARGV[4])
local chunk = ARGV[5] ~= ''
if number ~= last and not (chunk and number == last + 1) then return {'number', term[3]} end
local beat = string.format('%.0f', tonumber(term[5]) + 1)
if number == last + 1 then
  redis.call('XADD', KEYS[2], ARGV[3] .. '-' .. ARGV[4], 'c', ARGV[5])
  redis.call('HSET', KEYS[1], 'beat', beat, 'number', ARGV[4], 'reader', ARGV[7])
  if ARGV[6] ~= '' then redis.call('XTRIM', KEYS[2], 'MINID', ARGV[6]) end
else
  redis.call('HSET', KEYS[1], 'beat', beat)
end
if term[4] and ARGV[9] == '1' then redis.call('HDEL', KEYS[1], 'repairing') end
local at = 11
for key = 3, 2 + tonumber(ARGV[10]) do
  local kind, name = ARGV[at], KEYS[key]
  if kind == 'set' then
    redis.call('SET', name, ARGV[at + 1], 'PX', ARGV[at + 3])
  elseif kind == 'hash' then
    redis.call('HSET', name, 'tokens', ARGV[at + 1], 'last_refill', ARGV[at + 2])
    redis.call('PEXPIRE', name, ARGV[at + 3])
  else
    redis.call('DEL', name)
  end
  at = at + 4
end
redis.set_repl(redis.REPL_NONE)
local reply = {'ok', redis.call('PUBSUB', 'NUMSUB', ARGV[8])[2]}
for answer = at, #ARGV, 2 do
  local heard = redis.pcall('PUBLISH', ARGV[answer], ARGV[answer + 1])
  if heard == 0 then reply[#reply + 1] = (answer - at) / 2 end
end
return reply
