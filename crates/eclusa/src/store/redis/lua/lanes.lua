-- lanes: all lanes as they are.
--   KEYS[1], ARGV[1..3]: see lib/base.lua; ARGV[4]: names of the rules' own lanes
--   returns: { lanes = { name, state, in_flight, oldest_letter? }, slot_free_at, now }

function verbs.lanes(question)
  local names, known, shown = cmsgpack.unpack(question), {}, {}
  for _, name in ipairs(names) do
    local lane = lane_of(name)
    if not (lane and lane.rule) then
      return redis.error_reply('NORULES ' .. name)
    end
    known[name] = true
  end
  for _, field in ipairs(redis.call('HKEYS', key('lanes'))) do
    if not string.find(field, '/', 1, true) and not known[field] then
      names[#names + 1] = field
    end
  end
  for i, name in ipairs(names) do
    local lane = lane_of(name)
    local letter = letter_order(lane):first()
    shown[i] = { name = name, state = pack_lane(lane), gates = cmsgpack.pack(lane.gates), in_flight = lane.gates.in_flight,
      oldest_letter = letter and number_in(letter) or nil }
  end
  return cmsgpack.pack({ lanes = shown, slot_free_at = (next_lease_end()), now = now })
end
