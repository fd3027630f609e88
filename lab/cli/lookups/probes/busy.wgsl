// Every row, in order, with much to compute for each of its numbers.
for (var r = 0u; r < rows; r++) {
    let row = $table[r];
    let near = x * row.x + row.y;
    value += row.z * near / (1.0 + near * near) + sqrt(abs(near)) * row.w;
}
