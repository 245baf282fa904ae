-- Rate limits, by the rules of `core.rate`. A meter is a flat list of buckets, oldest first: number, grants, number, …
--
-- needs calls: floor, max, min
-- exports: granted, spend, refund, opens_at, change_rate

local BUCKETS = 64

-- Drops the buckets that have left the window, and returns the meter.
local function current(limits, now)
  local meter, oldest = limits.meter, floor(now / limits.bucket) - BUCKETS
  if not meter[1] or meter[1] >= oldest then
    return meter
  end
  local kept = {}
  for number = 1, #meter, 2 do
    if meter[number] >= oldest then
      kept[#kept + 1], kept[#kept + 2] = meter[number], meter[number + 1]
    end
  end
  limits.meter = kept
  return kept
end

-- Returns how many starts the window holds.
function granted(limits, now)
  local meter, sum = current(limits, now), 0
  for number = 2, #meter, 2 do
    sum = sum + meter[number]
  end
  return sum
end

function spend(limits, now, grants)
  local meter = current(limits, now)
  local count, bucket = #meter, floor(now / limits.bucket)
  if count > 0 and meter[count - 1] >= bucket then
    meter[count] = meter[count] + grants
  else
    meter[count + 1], meter[count + 2] = bucket, grants
  end
end

-- Takes back the latest grants.
function refund(limits, grants)
  local meter = limits.meter
  while grants > 0 and #meter > 0 do
    local last = meter[#meter]
    local back = min(last, grants)
    grants = grants - back
    if last > back then
      meter[#meter] = last - back
    else
      meter[#meter] = nil
      meter[#meter] = nil
    end
  end
end

-- Returns when the next start is allowed.
function opens_at(limits, now)
  local meter, at = current(limits, now), now
  local excess = granted(limits, now) - limits.count + 1
  for number = 1, #meter, 2 do
    if excess <= 0 then
      break
    end
    excess = excess - meter[number + 1]
    at = max(at, (meter[number] + BUCKETS + 1) * limits.bucket)
  end
  return at
end

-- Sets another rate. What was granted still counts, at the latest moment at which it can have been granted.
function change_rate(limits, count, window, bucket, now)
  local old = limits.count and {bucket = limits.bucket, meter = limits.meter}
  local is_same = old and limits.window == window
  limits.count, limits.window, limits.bucket = count, window, bucket
  if not old or not count then
    limits.meter = {}
  elseif is_same then
    limits.meter = current(limits, now)
  else
    local before = current(old, now)
    limits.meter = {}
    for number = 1, #before, 2 do
      spend(limits, min(now, (before[number] + 1) * old.bucket - 1), before[number + 1])
    end
    limits.meter = current(limits, now)
  end
end
