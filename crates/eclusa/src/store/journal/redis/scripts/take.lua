#!lua flags=allow-oom
-- Takes a new term, if nothing changed since the last look and this process listens to the new term's questions.
--
-- KEYS[1]  the term (hash)   KEYS[2]  claims (hash)
-- ARGV[1]  term that was seen, '' for none   ARGV[2]  beat that was seen
-- ARGV[3]  run of the server                 ARGV[4]  the new term
-- ARGV[5]  the new epoch is above this       ARGV[6]  reason: released, deaf, silent, settled, first
-- ARGV[7]  channel of the new term's questions
-- ARGV[8]  channel of the seen term's questions
-- ARGV[9]  the process that takes over       ARGV[10] channel of the fleet, which is notified
-- ARGV[11] term under which that process wrote the state that it has, '' without state
--
-- Returns {'taken', epoch, number} or {'changed'}.
local seen = redis.call('HMGET', KEYS[1], 'term', 'beat', 'epoch', 'number', 'from', 'released', 'run')
if (seen[1] or '') ~= ARGV[1] then return {'changed'} end
if seen[1] and seen[2] ~= ARGV[2] then return {'changed'} end
local listeners = function(channel) return redis.call('PUBSUB', 'NUMSUB', channel)[2] end
if listeners(ARGV[7]) == 0 then return {'changed'} end
local reason = ARGV[6]
if reason == 'released' and seen[6] ~= '1' then return {'changed'} end
-- If its claim is missing, the server was emptied again since this process looked.
if reason == 'settled' and redis.call('HEXISTS', KEYS[2], ARGV[9]) == 0 then return {'changed'} end
if reason == 'deaf' and listeners(ARGV[8]) > 0 then return {'changed'} end
if reason ~= 'settled' and seen[1] and seen[7] ~= ARGV[3] then return {'changed'} end
local time = redis.call('TIME')
local epoch = math.max(
  tonumber(seen[3] or 0) + 1, tonumber(ARGV[5]) + 1, tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
epoch = string.format('%.0f', epoch)
local number = seen[4] or '0'
local from, known = {}, ARGV[11] == ''
for entry in string.gmatch(seen[5] or '', '%S+') do
  from[#from + 1] = entry
  known = known or string.sub(entry, 1, #ARGV[11] + 1) == ARGV[11] .. ':'
end
-- It writes its own state over a journal that continued without it: what these terms appended will be missing.
if not known then from = {} end
from[#from + 1] = ARGV[4] .. ':' .. number
while #from > 16 do table.remove(from, 1) end
redis.call('HSET', KEYS[1], 'term', ARGV[4], 'epoch', epoch, 'run', ARGV[3], 'number', number, 'beat', 0,
  'from', table.concat(from, ' '), 'owner', ARGV[9], 'since', time[1], 'released', 0, 'successor', '')
-- The process that takes over writes what the server lost; until that is done, others would continue without it.
if reason == 'settled' then
  redis.call('HSET', KEYS[1], 'repairing', 1)
else
  redis.call('HDEL', KEYS[1], 'repairing')
end
redis.set_repl(redis.REPL_NONE)
redis.pcall('PUBLISH', ARGV[10], 'taken')
return {'taken', epoch, number}
