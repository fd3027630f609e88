// One row by value.
let row = $table[(u32(x * 16777216.0) * 2654435761u >> 8u) % rows];
value = row.x + row.y * x;
