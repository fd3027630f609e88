// A pattern of sixteen rows, over and over.
let row = $table[i & 15u];
value = floor(x * 16.0 + row.w) * 0.0625;
