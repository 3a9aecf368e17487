-- register: a process says that it lives, and hears who else does. Whoever comes anew removes rules that nobody goes by.
--   KEYS[1], ARGV[1..3]: see lib/base.lua; ARGV[4]: id, about (any bytes)
--   returns: { { id, about }, … }, itself included

local LIVES = 10000

local function remove_rules(kind, in_force)
  local old = {}
  for _, field in ipairs(redis.call('HKEYS', key(kind))) do
    local version = string.match(field, '^(.*)/')
    if version and not in_force[version] then
      old[#old + 1] = field
    end
  end
  in_parts('HDEL', key(kind), old)
end

function verbs.register(question)
  local id, about = cmsgpack.unpack(question)
  local name = key('instances')
  local is_new = redis.call('HSET', name, id, cmsgpack.pack(now, about, RULES)) == 1

  local fields, alive, in_force = redis.call('HGETALL', name), {}, {}
  for i = 1, #fields, 2 do
    local seen, told, rules = cmsgpack.unpack(fields[i + 1])
    if now - seen < LIVES then
      alive[#alive + 1] = { id = fields[i], about = told }
      in_force[rules] = true
    else
      redis.call('HDEL', name, fields[i])
    end
  end
  if is_new then
    remove_rules('lanes', in_force)
    remove_rules('upstreams', in_force)
  end
  keep_clock()
  return cmsgpack.pack(alive)
end
