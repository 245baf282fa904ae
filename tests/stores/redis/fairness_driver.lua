-- Runs the fair choice on situations that a test has drawn, and returns what became of each. For tests only.
--
-- needs limits: is_free
-- needs tenants: load_of
-- needs fairness: new_choice, add_tenants, run_choice
-- KEYS     1: any name
-- ARGV     1: situations (msgpack): see test_fairness_matches_core.py
-- Returns: for each its picks, blocked lanes, queue, tenants and limiters (msgpack)

-- Returns the next tenants, up to where they were read if the page is full, and where the page after it begins.
local function read_page(situation, first)
  local page, last = {}, nil
  while #page < situation.at_once and situation.tenants[first] do
    last = situation.tenants[first]
    page[#page + 1] = last
    first = first + 1
  end
  local is_full = #page == situation.at_once
  local position = is_full and {load = load_of(last), finish = last.finish, name = last.name} or nil
  return page, position, first
end

-- Gives each lane those of its limiters that limit anything.
local function prepare(situation)
  for _, tenants in ipairs({situation.tenants, situation.moved}) do
    for _, tenant in ipairs(tenants) do
      for _, lane in ipairs(tenant.lanes) do
        local limits = {}
        for _, number in ipairs(lane.limiters) do
          if not is_free(situation.limiters[number]) then
            limits[#limits + 1] = situation.limiters[number]
          end
        end
        lane.limits = limits
      end
    end
  end
end

local function play(situation)
  prepare(situation)
  local choice = new_choice(situation.queue, situation.limits, situation.capacity, situation.now, situation.settings)
  local need, first, moved = 'tenants', 1, situation.moved
  while need do
    if need == 'tenants' then
      local page, position
      page, position, first = read_page(situation, first)
      add_tenants(choice, page, moved, position)
      moved = {}
    else
      choice.weights = situation.weights
    end
    need = run_choice(choice, situation.limit)
  end
  local picks, blocked_lanes, tenants = {}, {}, {}
  for number, lane in ipairs(choice.picks) do
    picks[number] = lane.name
  end
  for number, blocked in ipairs(choice.blocked_lanes) do
    blocked_lanes[number] = {blocked.lane.name, blocked.limiter.number}
  end
  for name, tenant in pairs(choice.known) do
    tenants[#tenants + 1] = {
      name = name, running = tenant.running, finish = tenant.finish, served = tenant.served,
      blocked = tenant.blocked, meter = tenant.meter,
    }
  end
  return {
    picks = picks, blocked_lanes = blocked_lanes, queue = situation.queue, limits = situation.limits,
    limiters = situation.limiters, tenants = tenants, is_cut = choice.is_cut, ceiling_until = choice.ceiling_until,
  }
end

local results = {}
for number, situation in ipairs(cmsgpack.unpack(ARGV[1])) do
  results[number] = play(situation)
end
return cmsgpack.pack(results)
