-- The health of a VerticalScaler or a ScaledDeployment in Argo CD, by the conditions that kstatus reads, too.
local function condition(kind)
  if obj.status == nil or obj.status.conditions == nil then
    return nil
  end
  for _, c in ipairs(obj.status.conditions) do
    if c.type == kind then
      return c
    end
  end
  return nil
end

local function is(c, status)
  return c ~= nil and c.status == status
end

local function health(status, c, otherwise)
  local text = otherwise
  if c ~= nil and c.message ~= nil and c.message ~= "" then
    text = c.message
    if c.reason ~= nil then
      text = c.reason .. ": " .. c.message
    end
  end
  return { status = status, message = text }
end

if obj.metadata.deletionTimestamp ~= nil then
  return health("Progressing", nil, "Deleting")
end
if obj.status == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return health("Progressing", nil, "Waiting for the operator to read the spec")
end

local ready, stalled, reconciling = condition("Ready"), condition("Stalled"), condition("Reconciling")
if is(stalled, "True") then
  return health("Degraded", stalled, "A user must act")
end
if is(ready, "True") and (ready.reason == "Suspended" or ready.reason == "Paused") then
  return health("Suspended", ready, "Nothing is changed")
end
if is(reconciling, "True") then
  return health("Progressing", reconciling, "Applying the spec")
end
if is(ready, "False") then
  return health("Degraded", ready, "Not ready")
end
if not is(ready, "True") then
  return health("Progressing", ready, "Waiting for the operator")
end

-- A scaler that works says what it does. Waiting and learning are healthy.
local applied = condition("Applied")
if ready.reason == "OperatingNormally" and applied ~= nil then
  return health("Healthy", applied, "Operating normally")
end
return health("Healthy", ready, "Operating normally")
