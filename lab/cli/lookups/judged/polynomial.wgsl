// Horner's rule over the whole table.
for (var r = 0u; r < rows; r++) {
    let row = $table[r];
    value = (((value * x + row.x) * x + row.y) * x + row.z) * x + row.w;
}
