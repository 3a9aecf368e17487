-- Leases: the one set, with expiry, that slots and probes are counted from.
--
-- use: 'job' (a worker runs it and holds a slot of the lane), 'awaiting' (the upstream works on it), 'call' (without a
-- job, or its job was cancelled), 'later' (the same after its job had been elsewhere: the lane's token is spent).

local leases, lease_ends, issue_lease, put_lease, remove_lease, next_lease_end
do
  local function read_lease(raw)
    local use, job, lane, upstream, generation, holds, expires, owner = cmsgpack.unpack(raw)
    return { use = use, job = job, lane = lane, upstream = upstream, generation = generation, holds = holds, expires = expires,
      owner = owner }
  end

  local function pack_lease(lease)
    return cmsgpack.pack(lease.use, lease.job, lease.lane, lease.upstream, lease.generation, lease.holds, lease.expires,
      lease.owner)
  end

  leases = basin_records('leases', read_lease, pack_lease)
  lease_ends = basin_set('lease-ends')

  function issue_lease(nonce)
    basin.leases = basin.leases + 1
    return struct.pack('>I8I4I4', basin.leases, 0, nonce)
  end

  -- It is one on gates of `lease.owner`.
  function put_lease(id, lease)
    leases:put(id, lease)
    lease_ends:add(id, lease.expires)
  end

  function remove_lease(id)
    local lease = leases:get(id)
    if lease then
      leases:remove(id)
      lease_ends:remove(id)
    end
    return lease
  end

  -- When the next lease runs out, and which one.
  function next_lease_end()
    local id, ends = lease_ends:first()
    return ends or NEVER, id
  end
end
