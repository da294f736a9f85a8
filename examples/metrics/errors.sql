-- Machines that have logged more errors in half a minute than they may.
WITH lines AS (
  SELECT _timestamp, split(value, ' ')[1] AS host, split(value, ' ')[2] AS level FROM logs
),
counts AS (
  SELECT window.start AS since, window.end AS until, host, 'errors' AS metric, count(*) AS value
  FROM lines
  WHERE level = 'ERROR'
  GROUP BY window(_timestamp, '30 seconds'), host
)
SELECT counts.since, counts.until, counts.host, counts.metric, counts.value, limits.high
FROM counts JOIN limits ON counts.host = limits.host AND counts.metric = limits.metric
WHERE counts.value > limits.high
