-- Averages above the limit of their machine.
SELECT averages.since, averages.until, averages.host, averages.metric, averages.value, limits.high
FROM averages JOIN limits ON averages.host = limits.host AND averages.metric = limits.metric
WHERE averages.value > limits.high
