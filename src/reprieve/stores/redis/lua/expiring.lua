-- When waiting jobs expire: `:expiring` has the jobs that have a time of their own, `:expiring_lanes` the lanes by the
-- deadline of their first fresh job.
--
-- The fresh jobs of a lane mostly have deadlines in the order of the lane. Then the first tells when to look at the lane.
-- A fresh job whose deadline is earlier than that of a job before it, and every other waiting job, has a time of its own.
--
-- needs calls: tag, call, max, call_many
-- exports: expiring_key, expiring_lanes_key, add_deadline, add_expiry, remove_expiry, set_lane_expiry, write_expiry

local DISORDER_MS = 2000 -- by which a deadline may be earlier than that of a job before it: so much later the job ends
local NEVER = 2 ^ 53 -- the deadline of a job that has none
local times, lanes_changed = {}, {}

expiring_key = tag .. ':expiring'
expiring_lanes_key = tag .. ':expiring_lanes'

-- Adds the time at which a job expires; false or 0 is none.
function add_expiry(id, at)
  if at and at > 0 then
    times[#times + 1], times[#times + 2] = at, id
  end
end

-- Adds a fresh job to its lane, before the lane counts it.
function add_deadline(lane, id, deadline)
  local at = deadline > 0 and deadline or NEVER
  local last = lane.ready > 0 and lane.last_deadline or 0
  if at < last - DISORDER_MS then
    add_expiry(id, deadline)
    return
  end
  lane.last_deadline = max(last, at)
  if at < NEVER and (not lane.expires_at or at < lane.expires_at) then
    set_lane_expiry(lane, at)
  end
end

-- Notes when to look at the first fresh jobs of a lane; false: not at all.
function set_lane_expiry(lane, at)
  lane.expires_at, lane.is_changed, lanes_changed[lane.name] = at, true, lane
end

-- Removes the times of jobs that wait no longer.
function remove_expiry(ids)
  call_many('ZREM', expiring_key, ids)
end

function write_expiry()
  call_many('ZADD', expiring_key, times)
  times = {}
  for name, lane in pairs(lanes_changed) do
    if lane.expires_at then
      call('ZADD', expiring_lanes_key, lane.expires_at, name)
    else
      call('ZREM', expiring_lanes_key, name)
    end
  end
  lanes_changed = {}
end
