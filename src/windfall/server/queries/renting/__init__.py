"""What rented machines cost, what was planned and learned of offers, and what other deadlines would cost. Reads only."""
