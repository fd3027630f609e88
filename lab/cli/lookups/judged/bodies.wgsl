// The pull of every body of the table.
for (var r = 0u; r < rows; r++) {
    let row = $table[r];
    let d = vec3<f32>(row.x - x, row.y - 0.5, row.z - 0.5);
    value += row.w / sqrt(d.x * d.x + d.y * d.y + d.z * d.z + 0.01);
}
