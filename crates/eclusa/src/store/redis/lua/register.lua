-- register: a process says that it lives, and hears who else does.
--   KEYS[1], ARGV[1..3]: see lib/base.lua; ARGV[4]: id, about (any bytes)
--   returns: { { id, about }, … }, itself included

local LIVES = 10000

function verbs.register(question)
  local id, about = cmsgpack.unpack(question)
  local name = key('instances')
  redis.call('HSET', name, id, cmsgpack.pack(now, about))

  local fields, alive = redis.call('HGETALL', name), {}
  for i = 1, #fields, 2 do
    local seen, told = cmsgpack.unpack(fields[i + 1])
    if now - seen < LIVES then
      alive[#alive + 1] = { id = fields[i], about = told }
    else
      redis.call('HDEL', name, fields[i])
    end
  end
  keep_clock()
  return cmsgpack.pack(alive)
end
