// Neighbours read neighbouring rows.
let row = $table[i % rows];
value = x * row.x + row.y;
