-- What each machine has measured, on average over half a minute.
SELECT window.start AS since, window.end AS until, host, metric, round(avg(value), 1) AS value
FROM metrics
GROUP BY window(at, '30 seconds'), host, metric
