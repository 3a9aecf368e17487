-- tenants: those of a lane, in the order in which they first came.
--   KEYS[1], ARGV[1..3]: see lib/base.lua; ARGV[4]: lane, from which arrival on, how many
--   returns: { tenants = { name, arrival, processed, last_processed?, turns }, levels = { turn, current?, in_a_row } }

function verbs.tenants(question)
  local name, from, most = cmsgpack.unpack(question)
  local lane = lane_of(name)
  if not lane then
    return cmsgpack.pack({ tenants = {}, levels = {} })
  end
  local members = redis.call('ZRANGE', key('arrivals', name), from, '+inf', 'BYSCORE', 'LIMIT', 0, most + 1)
  local names, shown = {}, {}
  for i, member in ipairs(members) do
    names[i] = string.sub(member, 9)
  end
  tenants_of(lane):fetch(names)
  for _, tenant_name in ipairs(names) do
    if tenant_name ~= EVERYONE and #shown < most then
      local tenant, turns = tenants_of(lane):get(tenant_name), {}
      for level = HIGH, LOW do
        turns[level] = tenant.levels[level] and tenant.levels[level].last_turn or NEVER
      end
      shown[#shown + 1] = { name = tenant_name, arrival = tenant.arrival, processed = tenant.processed,
        last_processed = tenant.last_processed, turns = turns }
    end
  end
  local levels = {}
  for level = HIGH, LOW do
    local state = lane.levels[level]
    levels[level] = { turn = state.turn, current = state.current, in_a_row = state.in_a_row }
  end
  return cmsgpack.pack({ tenants = shown, levels = levels })
end
