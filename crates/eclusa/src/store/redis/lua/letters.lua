-- letters: dead letters of a lane, oldest first.
--   KEYS[1], ARGV[1..3]: see lib/base.lua; ARGV[4]: lane, after which number, how many
--   returns: { { number, job, letter }, … }

function verbs.letters(question)
  local name, from, most = cmsgpack.unpack(question)
  local members = redis.call('ZRANGE', key('dead-order', name), '(' .. string.format('%.0f', from), '+inf', 'BYSCORE',
    'LIMIT', 0, most, 'WITHSCORES')
  local shown = {}
  for i = 1, #members, 2 do
    local id = string.sub(members[i], 17)
    shown[#shown + 1] = { number = tonumber(members[i + 1]), job = id, letter = redis.call('HGET', key('dead', name), id) }
  end
  return cmsgpack.pack(shown)
end
