// Neighbours read neighbouring numbers.
let at = i % (4u * rows);
value = x * $table[at / 4u][at % 4u];
