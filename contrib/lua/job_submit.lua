-- SPDX-License-Identifier: Apache-2.0
-- gresize for sites that cannot install the plugin job_submit/gresize: the same questions and answers (slurm/wire/FORMAT.md) from
-- Slurm's own plugin job_submit/lua. Copy it to the folder of slurm.conf, or load it from the site's job_submit.lua:
--
--   local gresize = dofile("/etc/slurm/gresize.lua")     -- this file
--   function slurm_job_submit(job, parts, uid) ...; gresize.submit(job, uid); return slurm.SUCCESS end
--
-- It needs lua-posix for the Lua that slurmctld uses (Debian: 5.1). Without it there are no unix sockets, and the
-- shim stays off and says so once. What Lua cannot do, whatever is installed:
--   * list a job's environment: only the names in settings.variables are read. So the environment is announced as cut, and gresized records the
--     job and leaves it alone, unless the site says that these names are all that its jobs need (assume_environment).
--   * take a variable out: a reply that asks for it is not obeyed, so types and shards are only changed where no variable contradicts.
--   * run beside itself: slurmctld calls one script at a time, so a slow daemon costs every submission up to the deadline.
-- Whatever goes wrong, the job stays as it was.

local settings = {
	socket = "/run/gresize/submit.sock",
	deadline_ms = 50,
	-- The release of this slurmctld, which Lua is not told, as `slurmctld -V` prints it: the spelling of requests depends on it.
	slurm_version = nil,
	assume_environment = false,
	variables = { "CONDA_DEFAULT_ENV", "CONDA_PREFIX", "CUDA_HOME", "GRESIZE", "HOME", "LANG", "LD_LIBRARY_PATH", "LOADEDMODULES", "LOGNAME",
		"MODULEPATH", "PATH", "PYTHONPATH", "SHELL", "SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_SOCKET", "SLURM_GPUS_PER_TASK", "SLURM_GRES",
		"SLURM_TRES_PER_TASK", "USER", "VIRTUAL_ENV" },
}

local MAX_SCRIPT, MAX_TEXT, MAX_REPLY = 1048576, 65536, 16384
local FAILURES, FIRST_PAUSE, LONGEST_PAUSE = 3, 10, 120
local TOKEN_PREFIX = "gresize:v1:"

local function have(name)
	local ok, module = pcall(require, name)
	return ok and type(module) == "table" and module or nil
end

local socket, poll, fcntl, unistd, clock = have("posix.sys.socket"), have("posix.poll"), have("posix.fcntl"), have("posix.unistd"), have("posix.time")
local state = { failures = 0, paused_until = 0, pause = FIRST_PAUSE, said_off = false }

local function log(...) slurm.log_info("job_submit/lua: gresize: %s", string.format(...)) end

local function now()
	local t = clock.clock_gettime(clock.CLOCK_MONOTONIC)
	return t.tv_sec + t.tv_nsec / 1e9
end

-- Writing. Lua's numbers are exact up to 2^53, and what is larger is written as two words.

local function u32(n)
	return string.char(math.floor(n / 16777216) % 256, math.floor(n / 65536) % 256, math.floor(n / 256) % 256, n % 256)
end

local function u64(n) return u32(math.floor(n / 4294967296)) .. u32(n % 4294967296) end

local function field(tag, value)
	return string.char(math.floor(tag / 256), tag % 256) .. u32(#value) .. value
end

local function text(tag, value, most)
	if type(value) ~= "string" or value == "" then return "" end
	if #value > most then error("field " .. tag .. " is too long") end
	return field(tag, value)
end

-- A number that the user did not give is one of Slurm's marks, and is left out.
local function number(tag, value)
	local n = tonumber(value)
	if not n or n < 0 or n == slurm.NO_VAL or n == slurm.NO_VAL16 or n == slurm.NO_VAL64 or n > 2 ^ 53 then return "" end
	return field(tag, u64(n))
end

local function list(tag, entries)
	local parts = {}
	for _, entry in ipairs(entries) do parts[#parts + 1] = u32(#entry) .. entry end
	return #parts > 0 and field(tag, table.concat(parts)) or ""
end

local function given(value) return type(value) == "string" and value ~= "" and value or nil end

local function names_gpu(value)
	for entry in string.gmatch(string.lower(given(value) or ""), "[^,;]+") do
		local name = string.match(string.gsub(entry, "^gres[:/]", ""), "^[^:=(]+")
		if name == "gpu" or name == "shard" or name == "mps" then return true end
	end
	return false
end

local function asks_for_gpu(job)
	return names_gpu(job.tres_per_job) or names_gpu(job.tres_per_node) or names_gpu(job.tres_per_socket) or names_gpu(job.tres_per_task)
end

local function opts_out(job, environment)
	for word in string.gmatch(string.lower(job.comment or ""), "[^%s,;]+") do
		if word == "gresize:off" then return true end
	end
	for _, line in ipairs(environment) do
		if string.lower(line) == "gresize=off" then return true end
	end
	for word in string.gmatch("\n" .. job.script, "\n#GRESIZE[ \t]+(%a+)") do
		if string.lower(word) == "off" then return true end
	end
	return false
end

local function skip_reason(job, environment)
	if job.het_job_offset and job.het_job_offset ~= slurm.NO_VAL then return "het" end
	if not given(job.script) then return "no_script" end
	if job.bitflags and math.floor(job.bitflags / 4194304) % 2 == 1 then return "cron" end
	if given(job.clusters) then return "other_cluster" end
	if given(job.burst_buffer) then return "burst_buffer" end
	if job.priority == 0 then return "on_hold" end
	if string.find(job.admin_comment or "", TOKEN_PREFIX, 1, true) then return "token_present" end
	if opts_out(job, environment) then return "opt_out" end
	return nil
end

local function version_number()
	local major, minor, micro = string.match(settings.slurm_version or "", "(%d+)%.(%d+)%.(%d+)")
	return major and major * 65536 + minor * 256 + micro or nil
end

local function environment_of(job)
	local lines = {}
	if type(job.environment) == "table" or type(job.environment) == "userdata" then
		for _, name in ipairs(settings.variables) do
			local value = job.environment[name]
			if type(value) == "string" then lines[#lines + 1] = name .. "=" .. value end
		end
	end
	return lines
end

local function memory(job)
	if job.min_mem_per_cpu then return field(48, u32(2147483648) .. u32(job.min_mem_per_cpu % 4294967296)) end
	return number(48, job.min_mem_per_node)
end

local function describe(job, uid)
	local environment = environment_of(job)
	local reason = skip_reason(job, environment)
	local script, argv = job.script or "", {}
	if type(job.argv) == "table" or type(job.argv) == "userdata" then
		for i = 0, math.min(tonumber(job.argc) or 0, 1024) - 1 do argv[#argv + 1] = tostring(job.argv[i]) end
	end
	local argc, total = #argv, #environment + (settings.assume_environment and 0 or 1)
	local sent = reason and "" or string.sub(script, 1, MAX_SCRIPT)
	if reason then argv, environment = {}, {} end
	local begin = tonumber(job.begin_time) or 0
	if begin == slurm.NO_VAL then begin = 0 end
	return table.concat({
		field(1, u64(version_number())), field(2, u64(uid)), field(3, u64(job.user_id)), field(4, u64(job.group_id)), field(5, u64(job.shared == 0 and 1 or 0)),
		field(6, u64(begin)), field(7, u64(0)),
		text(16, job.name, MAX_TEXT), text(17, job.partition, MAX_TEXT), text(18, job.account, MAX_TEXT), text(19, job.qos, MAX_TEXT),
		text(20, job.reservation, MAX_TEXT), text(21, job.features, MAX_TEXT), text(22, job.prefer, MAX_TEXT), text(23, job.tres_per_job, MAX_TEXT),
		text(24, job.tres_per_node, MAX_TEXT), text(25, job.tres_per_socket, MAX_TEXT), text(26, job.tres_per_task, MAX_TEXT),
		text(27, job.cpus_per_tres, MAX_TEXT), text(28, job.mem_per_tres, MAX_TEXT), text(29, job.array_inx, MAX_TEXT), text(30, job.comment, MAX_TEXT),
		text(31, job.admin_comment, MAX_TEXT), text(32, job.dependency, MAX_TEXT), text(33, job.licenses, MAX_TEXT), text(34, job.work_dir, MAX_TEXT),
		text(35, job.req_nodes, MAX_TEXT), text(36, job.exc_nodes, MAX_TEXT), text(37, reason, MAX_TEXT),
		memory(job), number(50, job.min_cpus), number(51, job.min_nodes), number(52, job.max_nodes), number(53, job.num_tasks), number(54, job.cpus_per_task),
		number(55, job.ntasks_per_node), number(57, job.time_limit), number(58, job.priority),
		list(64, argv), field(65, u64(argc)), text(66, sent, MAX_SCRIPT), field(67, u64(#script)), list(68, environment), field(69, u64(total)),
	}), reason
end

-- Asking: one connection, one request, one reply, one deadline.

local function wait(fd, event, until_s)
	while true do
		local left = math.floor((until_s - now()) * 1000)
		if left <= 0 then error("no answer in time") end
		local fds = { [fd] = { events = { [event] = true } } }
		local ready = poll.poll(fds, left)
		if ready and ready > 0 then return end
	end
end

local function exchange(fd, frame)
	local deadline = now() + settings.deadline_ms / 1000
	local ok, answer = pcall(function()
		fcntl.fcntl(fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
		-- A connection to a full queue would wait for ever otherwise.
		fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.O_NONBLOCK)
		local connected, why = socket.connect(fd, { family = socket.AF_UNIX, path = settings.socket })
		if not connected then error(tostring(why)) end
		local at = 1
		while at <= #frame do
			wait(fd, "OUT", deadline)
			local n = socket.send(fd, string.sub(frame, at, at + 65535))
			if n then at = at + n end
		end
		local got = ""
		while true do
			wait(fd, "IN", deadline)
			local piece = socket.recv(fd, 4096)
			if piece == "" then error("the connection was closed without an answer") end
			got = got .. (piece or "")
			if #got >= 12 then
				local a, b, c, d = string.byte(got, 9, 12)
				local length = ((a * 256 + b) * 256 + c) * 256 + d
				if string.sub(got, 1, 8) ~= "GRSZ\0\1\0\2" or length > MAX_REPLY then error("not an answer") end
				if #got >= 12 + length then return string.sub(got, 13, 12 + length) end
			end
		end
	end)
	unistd.close(fd)
	if not ok then error(answer, 0) end
	return answer
end

-- Reading. Anything that is not exactly as the format says makes the whole reply void.

local TEXTS = { [21] = "features", [23] = "tres_per_job", [24] = "tres_per_node", [25] = "tres_per_socket", [26] = "tres_per_task", [27] = "cpus_per_tres",
	[28] = "mem_per_tres" }
local NUMBERS = { [1] = "verdict", [2] = "hold_seconds", [48] = "min_mem_per_node", [50] = "min_cpus" }

local function decode(body)
	local reply, at, last = { texts = {}, numbers = {} }, 1, -1
	while at <= #body do
		if at + 5 > #body then error("a field is cut") end
		local t1, t2, a, b, c, d = string.byte(body, at, at + 5)
		local tag, length = t1 * 256 + t2, ((a * 256 + b) * 256 + c) * 256 + d
		if tag <= last or at + 5 + length > #body then error("a field is cut or out of order") end
		local value = string.sub(body, at + 6, at + 5 + length)
		at, last = at + 6 + length, tag
		if NUMBERS[tag] then
			if length ~= 8 then error("a number of another size") end
			local n = 0
			for i = 1, 8 do n = n * 256 + string.byte(value, i) end
			if n > 2 ^ 53 then error("a number that Lua cannot hold") end
			reply.numbers[NUMBERS[tag]] = n
		elseif tag == 3 then
			if #value > 64 or not string.find(value, "^[%w_-]+$") then error("not a token") end
			reply.token = value
		elseif TEXTS[tag] then
			if #value > 1023 or string.find(value, "[^\32-\126]") then error("not a plain text") end
			reply.texts[TEXTS[tag]] = value
		elseif tag == 4 then
			error("variables cannot be taken out by Lua")
		elseif tag < 32768 then
			error("unknown field " .. tag)
		end
	end
	local verdict, seconds = reply.numbers.verdict, reply.numbers.hold_seconds
	if not verdict or verdict < 1 or verdict > 3 or not seconds or seconds > 300 or (verdict == 3) ~= (reply.token ~= nil) or (verdict ~= 3 and seconds > 0) then
		error("not a verdict")
	end
	return reply
end

local function apply(job, reply)
	local verdict, seconds = reply.numbers.verdict, reply.numbers.hold_seconds
	if verdict == 1 then return end
	for name, value in pairs(reply.texts) do job[name] = value end
	if reply.numbers.min_mem_per_node then job.min_mem_per_node = reply.numbers.min_mem_per_node end
	if reply.numbers.min_cpus then job.min_cpus = reply.numbers.min_cpus end
	if verdict ~= 3 then return end
	local old = given(job.admin_comment)
	job.admin_comment = (old and old .. "," or "") .. TOKEN_PREFIX .. reply.token
	local until_s, begin = os.time() + seconds, tonumber(job.begin_time) or 0
	if seconds > 0 and (begin == slurm.NO_VAL or begin < until_s) then job.begin_time = until_s end
end

local function failed(why)
	state.failures = state.failures + 1
	if state.failures < FAILURES then return end
	state.paused_until = now() + state.pause
	log("gresized at %s: %s; jobs pass unchanged, next try in %d s", settings.socket, tostring(why), state.pause)
	state.pause = math.min(2 * state.pause, LONGEST_PAUSE)
end

local function consider(job, uid)
	if not asks_for_gpu(job) then return end
	if not (socket and socket.AF_UNIX and poll and fcntl and unistd and clock and version_number()) then
		if not state.said_off then
			state.said_off = true
			log("off: %s", version_number() and "lua-posix is not installed for this Lua" or "settings.slurm_version is not set")
		end
		return
	end
	if now() < state.paused_until then return end
	local body, skipped = describe(job, uid)
	-- A slurmctld without descriptors is no fault of gresized's: it opens no pause.
	local fd, want = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0)
	if not fd then return log("not asked: %s", tostring(want)) end
	local asked, answer = pcall(exchange, fd, "GRSZ\0\1\0\1" .. u32(#body) .. body)
	if not asked then return failed(answer) end
	state.failures, state.paused_until, state.pause = 0, 0, FIRST_PAUSE
	local understood, reply = pcall(decode, answer)
	if not understood then return log("an answer that is not obeyed: %s", tostring(reply)) end
	if not skipped then apply(job, reply) end
end

local gresize = { settings = settings }

function gresize.submit(job, uid)
	local ok, why = pcall(consider, job, uid)
	if not ok then log("%s; the job is left as it was", tostring(why)) end
end

function slurm_job_submit(job, _, uid)
	gresize.submit(job, uid)
	return slurm.SUCCESS
end

function slurm_job_modify()
	return slurm.SUCCESS
end

return gresize
