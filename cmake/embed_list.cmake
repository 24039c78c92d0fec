# What is embedded; read by hyalite_embed, which sets `dir` and takes `generated`.

set(script ${PROJECT_SOURCE_DIR}/cmake/embed.cmake)

foreach(file page.html page.css page_tools.js page_graph.js page_plan.js page.js)
  set(page ${PROJECT_SOURCE_DIR}/src/explain/${file})
  string(REPLACE "." "_" name ${file})
  add_custom_command(
    OUTPUT ${dir}/${name}.cpp
    COMMAND ${CMAKE_COMMAND} -DIN=${page} -DOUT=${dir}/${name}.cpp -DNAME=${name} -P ${script}
    DEPENDS ${page} ${script}
    VERBATIM)
  list(APPEND generated ${dir}/${name}.cpp)
endforeach()

file(GLOB op_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/ops/*.h)
add_custom_command(
  OUTPUT ${dir}/op_sources.cpp
  COMMAND ${CMAKE_COMMAND} "-DIN=${op_headers}" -DROOT=${PROJECT_SOURCE_DIR} -DOUT=${dir}/op_sources.cpp
          -DNAME=embedded_ops -P ${script}
  DEPENDS ${op_headers} ${script}
  VERBATIM)
list(APPEND generated ${dir}/op_sources.cpp)
