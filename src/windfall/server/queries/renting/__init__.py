"""What rented machines cost, what was planned and learned of offers, what other deadlines would cost. Reads only."""
