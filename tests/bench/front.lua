-- tests/bench/front.lua -- the front of the Redis alternative: POST /coupons/{id}/redemptions in nginx's own Lua.
-- Checks what the service checks of a plain redemption (key, body, user), runs redeem.lua by its SHA over a kept Unix
-- socket, and answers with a redemption of the same shape. It speaks RESP itself: one write, one line back.
local cjson = require("cjson.safe")
local front = {}
local script, sha, bearer

function front.init(path, key)
    local file = assert(io.open(path))
    script = file:read("*a")
    file:close()
    local digest = {}
    for byte in ngx.sha1_bin(script):gmatch(".") do
        digest[#digest + 1] = string.format("%02x", byte:byte())
    end
    sha = table.concat(digest)
    bearer = "Bearer " .. key
end

local function resp(...)
    local words = {...}
    local out = {"*" .. #words .. "\r\n"}
    for i = 1, #words do
        out[#out + 1] = "$" .. #words[i] .. "\r\n" .. words[i] .. "\r\n"
    end
    return table.concat(out)
end

local function ask(socket, command, argument, ...)
    local _, failed = socket:send(resp(command, argument, "2", ...))
    if failed then return nil, failed end
    return socket:receive("*l")
end

local function problem(status, code)
    ngx.status = status
    ngx.header["Content-Type"] = "application/problem+json"
    ngx.print('{"type":"/coupons/-/problems/', code, '","status":', status, ',"code":"', code, '"}')
end

function front.redeem(address)
    if ngx.var.http_authorization ~= bearer then return problem(401, "unauthorized") end
    local coupon = string.match(ngx.var.uri, "^/coupons/([%w_][%w_-]*)/redemptions$")
    if not coupon then return problem(404, "not_found") end
    local key = ngx.var.http_idempotency_key
    if not key then return problem(400, "idempotency_key_required") end
    ngx.req.read_body()
    local body = cjson.decode(ngx.req.get_body_data() or "")
    local user = type(body) == "table" and body.user
    if type(user) ~= "string" or #user < 1 or #user > 128 then return problem(400, "bad_request") end

    local socket = ngx.socket.tcp()
    if not socket:connect(address) then return problem(503, "busy") end
    local keys = {"c:" .. coupon, "u:" .. coupon .. ":" .. user, key, ngx.today()}
    local line, failed = ask(socket, "EVALSHA", sha, unpack(keys))
    if line and line:sub(1, 9) == "-NOSCRIPT" then line, failed = ask(socket, "EVAL", script, unpack(keys)) end
    if not line or line:sub(1, 1) ~= "+" then
        ngx.log(ngx.ERR, "redis: ", line or failed)
        return problem(503, "outcome_unknown")
    end
    socket:setkeepalive(60000, 512)

    local how, slot, ordinal, left, day, total, user_day = line:match("^%+(%a+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$")
    if not how then return problem(409, line:sub(2)) end
    ngx.status = 201
    ngx.header["Content-Type"] = "application/json"
    if how == "replay" then ngx.header["Idempotent-Replayed"] = "true" end
    local text = cjson.encode({
        id = slot .. "-1", coupon = coupon, user = user, slot = tonumber(slot), lane = 0, code = cjson.null, state = "redeemed",
        from = cjson.null, ordinal = tonumber(ordinal), seq = tonumber(ordinal), at = ngx.utctime(), reserved_until = cjson.null,
        valid_until = cjson.null, order = cjson.null, discount_minor = 0, metadata = {},
        after = {left = tonumber(left), day = tonumber(day), user = tonumber(total), user_day = tonumber(user_day)},
    })
    ngx.header["Content-Length"] = #text
    ngx.print(text)
end

return front
