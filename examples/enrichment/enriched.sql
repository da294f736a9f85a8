-- Each order with what is known of the customer.
SELECT orders.order_id, orders.ordered_at, orders.amount, customers.name, customers.country, customers.tier
FROM orders JOIN customers ON orders.customer = customers.customer
