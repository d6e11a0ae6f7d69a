"""A night as data: cells of a matrix, run one after the other and compared with other nights."""
