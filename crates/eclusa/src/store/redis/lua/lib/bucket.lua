-- Token buckets: { balance, at, remainder, closed_until } under a rule { capacity, refill_micro, refill_ms }.

local Bucket
do
  Bucket = {}

  -- floor((a * b + rest) / c) and what is left over, exact also where a double does not hold the product.
  local function divide(a, b, rest, c)
    local product = a * b + rest
    if product <= NEVER then
      local left = product % c
      return (product - left) / c, left
    end
    local quotient, left, digit = 0, 0, 2 ^ 48
    while digit >= 1 do
      local part = left * 65536 + floor(a / digit) % 65536 * b
      left = part % c
      quotient = quotient * 65536 + (part - left) / c
      digit = digit / 65536
    end
    left = left + rest
    return quotient + floor(left / c), left % c
  end

  function Bucket.full(rule)
    return { balance = rule.capacity, at = now, remainder = 0, closed_until = 0 }
  end

  function Bucket.refill(bucket, rule)
    if now <= bucket.at then
      return
    end
    local gained, left = divide(now - bucket.at, rule.refill_micro, bucket.remainder, rule.refill_ms)
    bucket.at, bucket.balance, bucket.remainder = now, bucket.balance + gained, left
    if bucket.balance >= rule.capacity then
      bucket.balance, bucket.remainder = rule.capacity, 0
    end
  end

  -- When `hold` will be there if nothing else is taken, from a bucket that was refilled.
  local function gained_at(bucket, rule, hold)
    local ms, left = divide(hold - bucket.balance, rule.refill_ms, -bucket.remainder, rule.refill_micro)
    return after(bucket.at, left > 0 and ms + 1 or ms)
  end

  -- Why and until when `hold` may not be taken; nothing if it may.
  function Bucket.denies(bucket, rule, hold)
    if bucket.closed_until > now then
      return 'upstream_retry_after', bucket.closed_until
    end
    Bucket.refill(bucket, rule)
    if bucket.balance < hold then
      return 'rate_limit', gained_at(bucket, rule, hold)
    end
  end

  function Bucket.take(bucket, rule, hold)
    Bucket.refill(bucket, rule)
    bucket.balance = bucket.balance - hold
  end

  -- Replaces a hold by the real cost: too much comes back, too little becomes debt.
  function Bucket.settle(bucket, rule, hold, cost)
    Bucket.refill(bucket, rule)
    bucket.balance = bucket.balance + hold - cost
    if bucket.balance >= rule.capacity then
      bucket.balance, bucket.remainder = rule.capacity, 0
    end
  end

  -- The balance cut to what `rule` can hold, after a change of rules.
  function Bucket.fit(bucket, rule)
    bucket.balance = min(bucket.balance, rule.capacity)
    bucket.remainder = min(bucket.remainder, rule.refill_ms - 1)
  end

  -- How long it takes to gain `tokens`.
  function Bucket.time_to_gain(rule, tokens)
    local ms, left = divide(max(tokens, 0), rule.refill_ms, 0, rule.refill_micro)
    return left > 0 and ms + 1 or ms
  end
end
