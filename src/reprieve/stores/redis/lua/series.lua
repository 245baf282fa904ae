-- What was counted for series and is not in their lines yet: the next prune adds it (roll_up_series.lua).
-- `:series_deltas` is a list of packed deltas; those of jobs that scripts end are a letter ('X' expired, 'C' cancelled), when
-- (8 bytes), and the lane's name. `:series_enqueued` counts enqueues by minute and lane.
--
-- needs calls: tag, call, floor, format, call_many
-- exports: ending_delta, add_deltas, count_enqueued

local MINUTE_MS = 60000

-- Returns the delta of a job that a script ends.
function ending_delta(letter, at, lane)
  return letter .. struct.pack('>d', at) .. lane
end

-- Keeps deltas for the next prune.
function add_deltas(deltas)
  call_many('RPUSH', tag .. ':series_deltas', deltas)
end

-- Counts new jobs, by the names of their lanes.
function count_enqueued(now, counts)
  local minute = format('%.0f', floor(now / MINUTE_MS)) .. '\0'
  for lane, count in pairs(counts) do
    call('HINCRBY', tag .. ':series_enqueued', minute .. lane, count)
  end
end
