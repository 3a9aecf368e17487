-- upstreams: all gates as they are.
--   KEYS[1], ARGV[1..3]: see lib/base.lua; ARGV[4]: names of the rules' own upstreams
--   returns: { upstreams = { name, gates, in_flight }, slot_free_at, now }

function verbs.upstreams(question)
  local names, known, shown = cmsgpack.unpack(question), {}, {}
  for _, name in ipairs(names) do
    local upstream = upstream_of(name)
    if not (upstream and upstream.rule) then
      return redis.error_reply('NORULES ' .. name)
    end
    known[name] = true
  end
  for _, field in ipairs(redis.call('HKEYS', key('upstreams'))) do
    if not string.find(field, '/', 1, true) and not known[field] then
      names[#names + 1] = field
    end
  end
  for i, name in ipairs(names) do
    local gates = upstream_of(name).gates
    shown[i] = { name = name, gates = cmsgpack.pack(gates), in_flight = gates.in_flight }
  end
  return cmsgpack.pack({ upstreams = shown, slot_free_at = (next_lease_end()), now = now })
end
