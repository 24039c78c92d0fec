# Turns text files into a C++ source that holds them.
#   cmake -DIN=page.html -DOUT=page_html.cpp -DNAME=page_template -P embed.cmake
#       gives  namespace hyalite { extern const char* const page_template; }
#   cmake "-DIN=a.h;b.h" -DROOT=/source -DOUT=ops.cpp -DNAME=embedded_ops -P embed.cmake
#       gives  namespace hyalite { extern const EmbeddedFile embedded_ops[]; }  with paths relative to ROOT, null last
cmake_minimum_required(VERSION 3.20)

# The text of FILE as adjacent raw string literals, each short enough for every compiler, cut at ends of lines so that
# no character is cut in two.
function(literals FILE RESULT)
  file(READ "${FILE}" rest)
  set(made "")
  string(LENGTH "${rest}" length)
  while(length GREATER 12000)
    string(SUBSTRING "${rest}" 0 12000 piece)
    string(FIND "${piece}" "\n" end REVERSE)
    if(end LESS 0)
      message(FATAL_ERROR "embed.cmake: ${FILE} has a line of more than 12000 characters")
    endif()
    math(EXPR end "${end} + 1")
    string(SUBSTRING "${rest}" 0 ${end} piece)
    string(SUBSTRING "${rest}" ${end} -1 rest)
    string(LENGTH "${rest}" length)
    string(APPEND made "R\"hyalite(${piece})hyalite\"\n")
  endwhile()
  string(APPEND made "R\"hyalite(${rest})hyalite\"")
  set(${RESULT} "${made}" PARENT_SCOPE)
endfunction()

if(DEFINED ROOT)
  set(source "#include \"explain/source.h\"\n\nnamespace hyalite {\nconst EmbeddedFile ${NAME}[] = {\n")
  foreach(file IN LISTS IN)
    literals("${file}" text)
    file(RELATIVE_PATH path "${ROOT}" "${file}")
    string(APPEND source "{\"${path}\",\n${text}},\n")
  endforeach()
  string(APPEND source "{nullptr, nullptr},\n};\n}  // namespace hyalite\n")
else()
  literals("${IN}" text)
  string(CONCAT source "namespace hyalite {\nextern const char* const ${NAME};\nconst char* const ${NAME} =\n${text};\n"
                       "}  // namespace hyalite\n")
endif()
file(WRITE "${OUT}" "${source}")
