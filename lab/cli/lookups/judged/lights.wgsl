// Light from every row that faces the item.
for (var r = 0u; r < rows; r++) {
    let row = $table[r];
    value += max(x * row.x - row.y, 0.0) * (row.z + row.w);
}
