-- Idempotency keys of a lane: the job each stands for, what came with it, and until when it is remembered.

local known_keys, keep_key, forget_keys, next_key_end
do
  -- A key lasts so long, and as long as its job.
  local LASTS = 86400000

  local function read_known(raw)
    local job, fingerprint = cmsgpack.unpack(raw)
    return { job = job, fingerprint = fingerprint }
  end

  local function pack_known(known)
    return cmsgpack.pack(known.job, known.fingerprint)
  end

  function known_keys(lane)
    return records(key('keys', lane.name), read_known, pack_known)
  end

  local function key_ends(lane)
    return set_of(lane, 'key-ends')
  end

  function keep_key(lane, name, job, fingerprint)
    known_keys(lane):put(name, { job = job, fingerprint = fingerprint })
    key_ends(lane):add(numbered(0, name), after(now, LASTS))
  end

  -- Forgets keys whose time is over, but for those of jobs that are still there.
  function forget_keys(lane)
    for _ = 1, MAX_BATCH do
      local member, at = key_ends(lane):first()
      if not member or at > now then
        return
      end
      local name = string.sub(member, 9)
      local job = jobs:get(known_keys(lane):get(name).job)
      if job and job.phase ~= FINISHED then
        key_ends(lane):add(member, after(now, LASTS))
      else
        known_keys(lane):remove(name)
        key_ends(lane):remove(member)
      end
    end
  end

  function next_key_end(lane)
    local _, at = key_ends(lane):first()
    return at or NEVER
  end
end
